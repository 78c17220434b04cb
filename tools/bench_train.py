"""What a training step costs beside a plain step that does what the authors' loop does

    python tools/bench_train.py [--pairs 7] [--threads 2] [--json FILE]

Cross-lingual alignment at the paper's size: a text tower of 12 blocks and width 512, mBERT's 119,547 token vectors, batches of 16 captions of
real length (as Multi30K's German ones: 15 pieces in the mean, 40 at most). The plain step pads to 77 tokens, encodes the English captions in
the loop, keeps gradients of the frozen tower too, and runs Adam on every token vector. Ours takes the English features from a store, cuts the
batch to its longest caption, lets nothing that is frozen keep gradients, and has the vocabulary cut to what the corpora use (20,000 pieces).
Both start from the same random weights and see the same batches; that their losses and what they learn agree is checked first. They are timed
in turn, so that other work on the machine hits both alike; a ratio is the median of the pairs' own ratios, with their quartiles."""
import argparse,copy,json,platform,statistics,time
import numpy as np,torch
from dasd_lab.backbone.towers import attention
from dasd_lab.presets import load_preset
from dasd_lab.training.counting import tower_config
from dasd_lab.training.plan import random_method
from dasd_lab.training.recipes import scaled_stages
from dasd_lab.training.runs import CriticTurn,train_step
from dasd_lab.training.stages import make_optimizer,set_trainable

USED,LANGUAGES = 20_000,('de','fr','cs','zh','ja')

class Side:
    "A method in training, as one of the two does it"
    def __init__(self, method, stage, plain:bool):
        self.method,self.stage,self.plain = method,stage,plain
        set_trainable(method, (*stage.trains, 'critic')); method.train()
        self.optimizer,self.turn,self.step = make_optimizer(method, stage),CriticTurn(method.critic, stage.critic),0
        if plain: method.backbone.requires_grad_(True) # what the authors' loop leaves open, and never uses

    def __call__(self, batch:dict)->float: # the loss
        if self.plain:
            batch = batch | dict(ids=torch.nn.functional.pad(batch['ids'], (0,77-batch['ids'].shape[1])))
            with torch.no_grad(): batch['source_features'] = self.method.backbone.source_from_ids(batch['source_ids'], batch['source_end'])
        row = train_step(self.method, self.stage, self.optimizer, {k: v for k,v in batch.items() if not k.startswith('source_') or k=='source_features'}, self.step, self.turn)
        self.step += 1
        if self.plain: self.method.backbone.zero_grad(set_to_none=True)
        return float(row['loss'])

def batches(backbone, n:int, size:int, vocabulary:int, rng)->list[dict]:
    "Captions of real length, with the English ones both as ids and as features"
    found = []
    for i in range(n):
        lengths = np.clip(np.round(rng.gamma(9, 15/9, size)), 5, 40).astype(int); ids = torch.zeros(size, int(lengths.max()), dtype=torch.long)
        for row,length in zip(ids, lengths): row[:length] = torch.from_numpy(rng.integers(4, USED, length))
        source_ids = torch.zeros(size, 77, dtype=torch.long); source_ids[:] = torch.from_numpy(rng.integers(4, vocabulary, (size,77))); source_end = torch.from_numpy(np.clip(lengths-2, 4, 38))
        with torch.no_grad(): features = backbone.source_from_ids(source_ids, source_end)
        found.append(dict(language=LANGUAGES[i%len(LANGUAGES)], ids=ids, end_index=torch.from_numpy(lengths-1), source_ids=source_ids, source_end=source_end, source_features=features))
    return found

def cut(method, n:int):
    "The same method with the first n token vectors"
    small = copy.deepcopy(method); old = small.token_vectors.embedding
    small.token_vectors.embedding = torch.nn.Embedding.from_pretrained(old.weight[:n].detach().clone(), freeze=False)
    return small

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--pairs', type=int, default=7); p.add_argument('--threads', type=int, default=2); p.add_argument('--batch', type=int, default=16); p.add_argument('--json', metavar='FILE')
    a = p.parse_args(); torch.set_num_threads(a.threads); torch.manual_seed(0)
    preset = load_preset('dasd.cc300k_zero_shot_paper'); stage = scaled_stages(preset, len(preset['languages']))[0]
    plain = random_method(preset, LANGUAGES, tower_config(preset)); ours = cut(plain, USED)
    vocabulary = len(plain.backbone.text.embedding.weight); seen = batches(plain.backbone, a.pairs+3, a.batch, vocabulary, np.random.default_rng(0))
    sides = Side(plain, stage, True),Side(ours, stage, False); seconds = []
    with attention(torch.device('cpu')):
        for i,batch in enumerate(seen):
            took,losses = [],[]
            for side in sides: began = time.perf_counter(); losses.append(side(batch)); took.append(time.perf_counter()-began)
            assert abs(losses[0]-losses[1])<=1e-3*abs(losses[0]), losses # equal up to the order of sums
            if i>=3: seconds.append(took)
    apart = max(float((x-y).detach().abs().max()) for (n,x),(_,y) in zip(plain.named_parameters(), ours.named_parameters()) if not n.startswith('backbone.') and x.shape==y.shape)
    low,middle,high = statistics.quantiles([x/y for x,y in seconds], n=4)
    row = dict(threads=a.threads, torch=torch.__version__, machine=platform.machine(), batch=a.batch, pairs=len(seconds), plain_s=statistics.median(x for x,_ in seconds), ours_s=statistics.median(y for _,y in seconds), times_as_fast=middle, quartiles=[low,high], largest_difference_of_a_parameter=apart)
    print(json.dumps(row, indent=1))
    if a.json:
        with open(a.json, 'w') as f: json.dump(row, f, indent=1)

if __name__=='__main__': main()
