"""embedctl: turn a corpus into vectors, serve queries over it, move it to a better model.

engine/ is embedctl.engine (token ids in, vectors out), pipeline/ is embedctl.pipeline (what is embedded,
where it goes, how far it has got), migrations/ is embedctl.migrations, cli.py the commands. Imports point one
way: engine <- pipeline <- cli.
"""

__version__ = "0.1.0"
