"""The ledger: the SQL record of runs, batches, documents and versions. The truth about progress."""
