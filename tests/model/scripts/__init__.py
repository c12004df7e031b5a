"""The machines of the core, told as scripts: what happens, and what they answer, in text that people can read."""
