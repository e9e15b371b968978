"""Pack a folder of recordings into tests/data/recordings.tar.xz, byte for byte the same each time.

    python scripts/recordings.py FOLDER

Packs `*.prom`, `*.json` and `*.csv` and `*.txt` of the folder and of its folders. Names are sorted
and nothing of the machine (times, owners, modes) is kept, so that a diff means other contents.
"""

import io
import lzma
import sys
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent.parent / "tests" / "data" / "recordings.tar.xz"
PACKED = {".prom", ".json", ".csv", ".txt"}


def packed(folder: Path) -> bytes:
    """The archive of a folder."""
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in PACKED):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(inner.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> int:
    """Pack the folder named on the command line."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(f"usage: {sys.argv[0]} FOLDER (with the recordings in it)")
        return 2
    ARCHIVE.write_bytes(packed(Path(sys.argv[1])))
    print(f"{ARCHIVE.name}: {ARCHIVE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
