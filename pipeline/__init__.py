"""What is embedded, where it goes and how far it has got: readers, chunking, ledger, stores, versions."""
