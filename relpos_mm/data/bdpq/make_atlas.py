"""Writes `atlas.npz`: letters of many faces and crops of photographed textures, as uint8.

Run once by the project, `python -m relpos_mm.data.bdpq.make_atlas`; nobody else needs it. It is the
only module that needs Pillow, matplotlib (for its fonts) and scikit-image (for its photographs).
Font rasterisers differ between FreeType versions, so the result is shipped and the generator starts
from it: this script records where the atlas comes from and is no step of making the data.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data as photographs

CELL_PX = 64
LETTERS = "bdpqoxst"
TEXTURES = ("brick", "grass", "gravel")
TEXTURE_PX = 176

# All upright and slanted text faces that matplotlib ships; symbol and display fonts have no letters
# of their own. "cm" is Computer Modern.
FACES = (
    *(
        f"DejaVu{family}{style}"
        for family, styles in {
            "Sans": ("", "-Bold", "-Oblique", "-BoldOblique"),
            "SansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
            "Serif": ("", "-Bold", "-Italic", "-BoldItalic"),
        }.items()
        for style in styles
    ),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"cm{style}10" for style in ("r", "b", "ss", "tt", "ti", "mi")),
)


def letter_cells(path: Path) -> np.ndarray:
    """The letters of one face, (letters, CELL_PX, CELL_PX) uint8, each centred in its cell.

    One font size for all letters of a face (the largest at which every letter fits), so that `o`
    stays smaller than `b`; centring each by its own box takes away what the height above the base
    line would tell about the letter.
    """
    for size in range(2 * CELL_PX, 0, -1):
        font = ImageFont.truetype(str(path), size)
        boxes = [font.getbbox(letter) for letter in LETTERS]
        if all(x1 - x0 <= CELL_PX and y1 - y0 <= CELL_PX for x0, y0, x1, y1 in boxes):
            break
    cells = []
    for letter, (x0, y0, x1, y1) in zip(LETTERS, boxes, strict=True):
        cell = Image.new("L", (CELL_PX, CELL_PX))
        corner = ((CELL_PX - (x1 - x0)) // 2 - x0, (CELL_PX - (y1 - y0)) // 2 - y0)
        ImageDraw.Draw(cell).text(corner, letter, fill=255, font=font)
        cells.append(np.asarray(cell))
    return np.stack(cells)


def texture_crop(name: str) -> np.ndarray:
    """The middle of a photograph at half its size, (TEXTURE_PX, TEXTURE_PX) uint8."""
    photograph = Image.fromarray(getattr(photographs, name)())
    half = photograph.resize((photograph.width // 2, photograph.height // 2), Image.Resampling.BOX)
    start = (half.width - TEXTURE_PX) // 2
    return np.asarray(half)[start : start + TEXTURE_PX, start : start + TEXTURE_PX]


def main() -> None:
    """Writes the atlas beside this file, the licence texts inside it too."""
    here = Path(__file__).parent
    fonts = Path(matplotlib.get_data_path()) / "fonts/ttf"
    np.savez_compressed(
        here / "atlas.npz",
        letters=np.array(list(LETTERS)),
        faces=np.array(FACES),
        glyphs=np.stack([letter_cells(fonts / f"{face}.ttf") for face in FACES]),
        texture_names=np.array(TEXTURES),
        textures=np.stack([texture_crop(name) for name in TEXTURES]),
        licences=np.array((here / "ATLAS_LICENSES.txt").read_text()),
    )
    print(f"{here / 'atlas.npz'}: {(here / 'atlas.npz').stat().st_size} bytes, {len(FACES)} faces")


if __name__ == "__main__":
    main()
