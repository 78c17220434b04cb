"Clean one notebook from standard input to standard output: a git clean filter (nbdev 2.4's own `--stdin` prints nothing)"
import json,sys
from execnb.nbio import dict2nb,nb2str
from nbdev.clean import clean_nb

def cleaned(
    text:str # a notebook as JSON
)->str:      # the same without counts, timings and foreign metadata
    nb = dict2nb(json.loads(text))
    clean_nb(nb)
    return nb2str(nb)

if __name__=='__main__':
    for stream in (sys.stdin,sys.stdout): stream.reconfigure(encoding='utf-8')
    sys.stdout.write(cleaned(sys.stdin.read()))
