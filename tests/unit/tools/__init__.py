"""The measuring tools: their pages and their parts."""
