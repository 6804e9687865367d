"""Sources of documents: folders and record files, decoded to canonical text."""
