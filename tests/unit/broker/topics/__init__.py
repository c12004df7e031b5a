"""A topic on its owner: what it reads, over real bookies where that matters."""
