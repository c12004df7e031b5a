"""Unit tests of daybook.core.topics.dispatch."""
