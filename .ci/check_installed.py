"""Fail when an installed wheel cannot be imported from its own folder or lacks the migrations."""

import sys
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory

import embedctl
import embedctl.cli

site = Path(sys.argv[1]).resolve()
if not Path(embedctl.__file__).resolve().is_relative_to(site):
    sys.exit(f"embedctl came from {embedctl.__file__}, not from the wheel in {site}")
config = Config()
config.set_main_option("script_location", "embedctl:migrations")
heads = ScriptDirectory.from_config(config).get_heads()
if len(heads) != 1:
    sys.exit(f"the wheel's migrations have {len(heads)} heads: {', '.join(heads) or 'none'}")
print(f"The installed wheel imports; its migrations end at {heads[0]}.")
