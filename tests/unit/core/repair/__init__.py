"""What is wrong with a ledger, its task in the queue of repairs, its turn there, and the machine that copies."""
