"""Writes wheels and a simple index (PEP 503) of them to a folder: `wheels.py FOLDER NAME...`"""

import base64
import hashlib
import pathlib
import sys
import zipfile


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


folder = pathlib.Path(sys.argv[1])
for name in sys.argv[2:]:
    file = folder / "files" / f"{name}-1.0+local.1-py3-none-any.whl"
    file.parent.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0+local.1.dist-info"
    contents = {
        f"{name}.py": f"NAME = {name!r}\nPADDING = {'x' * 200_000!r}\n".encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0+local.1\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: probe\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(file, "w") as wheel:
        record = ""
        for path, content in contents.items():
            wheel.writestr(path, content)
            record += f"{path},sha256={digest(content)},{len(content)}\n"
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    index = folder / "simple" / name / "index.html"
    index.parent.mkdir(parents=True, exist_ok=True)
    hash = hashlib.sha256(file.read_bytes()).hexdigest()
    link = f"../../files/{file.name.replace('+', '%2B')}#sha256={hash}"
    index.write_text(f'<!DOCTYPE html><html><body><a href="{link}">{file.name}</a></body></html>')
