"""Images of the explorers in the documentation: nbs/images/*.webp, from screenshots that browser tests leave

pytest tests/ui/test_accessibility.py tests/ui/test_ask.py -k "wcag or web_page"
python tools/release/screenshots.py"""

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
# image → screenshot
SHOTS = dict(
    app="web_ask",
    ask="ask_web_arabic",
    adapters="web_adapters",
    styles="web_styles",
    slots="web_slots",
    words="web_words",
    training="web_train",
    comparison="web_compare",
)

if __name__ == "__main__":
    for name, shot in SHOTS.items():
        image = Image.open(ROOT / f"tests/shots/{shot}.png").convert("RGB")
        image.thumbnail((1000, 1000), Image.Resampling.LANCZOS)
        image.save(ROOT / f"nbs/images/{name}.webp", quality=70, method=6)
