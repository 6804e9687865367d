"""Token ids in, vectors out. Imports nothing of embedctl outside this folder; torch only when a model is
used."""
