"""Vector stores: one interface, Qdrant Edge behind its store process."""
