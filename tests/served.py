"A gallery of plain colours, whose answers can be checked by eye, and a server on this machine"

import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from colours import Named
from PIL import Image

from dasd_lab.search.on_disk.stored import StoredGallery
from dasd_lab.serve.server import server_config

COLOURS = dict(red=(1, 0, 0), green=(0, 1, 0), blue=(0, 0, 1), yellow=(1, 1, 0))


def shade(colour: str, i: int) -> tuple[int, ...]:
    "The i-th shade of a colour; later ones are darker and a little greyer"
    full = 255 - 4 * i
    grey = 3 * i
    return tuple(full if v else grey for v in COLOURS[colour])


def picture(colour: str, i: int = 0, size=(24, 16)) -> Image.Image:
    return Image.new("RGB", size, shade(colour, i))


def draw(folder: Path, each: int) -> Path:
    "Files with some shades of each colour"
    folder.mkdir(parents=True)
    for colour in COLOURS:
        for i in range(each):
            picture(colour, i, (16, 24) if i % 4 == 1 else (24, 16)).save(folder / f"{colour}-{i:02d}.png")
    return folder


def make(folder: Path, drawn: Path) -> StoredGallery:
    "A gallery of the files of `draw`, with the shade, the colour and whether it is light as facts"
    names = sorted(p.stem for p in drawn.iterdir())
    gallery = StoredGallery(folder, Named(), dict(shade="integer", colour="text", light="flag", weight="number"))
    return gallery.add(
        drawn,
        facts=dict(
            shade=[int(n[-2:]) for n in names],
            colour=[n[:-3] for n in names],
            light=[int(n[-2:]) < 5 for n in names],
            weight=[int(n[-2:]) / 4 for n in names],
        ),
    )


@contextmanager
def serving(app, proxies=()):
    "Runs an application with the server of the command in a thread; yields its port"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        server = uvicorn.Server(server_config(app, proxies=proxies))
        thread = threading.Thread(target=server.run, kwargs=dict(sockets=[s]), daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield s.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(120)
