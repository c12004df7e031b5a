"""The machines of the core as scripts: what happens, and what they answer, in text that people can read."""
