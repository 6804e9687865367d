"""Fail when a wheel holds anything but embedctl: its modules, the folders of pyproject.toml, its metadata."""

import sys
import tomllib
import zipfile
from pathlib import Path

wheel = Path(sys.argv[1])
project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
packages = {name.replace(".", "/") for name in project["tool"]["setuptools"]["packages"]}
modules = {"embedctl/__init__.py", "embedctl/cli.py", "embedctl/py.typed"}


def belongs(name: str) -> bool:
    folder = name.rpartition("/")[0]
    if folder == "embedctl":
        return name in modules
    return folder in packages or folder.split("/")[0].endswith(".dist-info")


strays = [name for name in zipfile.ZipFile(wheel).namelist() if not belongs(name)]
if strays:
    sys.exit(f"{wheel.name} holds files that do not belong to embedctl: {', '.join(strays)}")
print(f"{wheel.name} holds embedctl and nothing else.")
