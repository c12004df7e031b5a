"""Tests of `daybook topic`, in parts that need no broker."""
