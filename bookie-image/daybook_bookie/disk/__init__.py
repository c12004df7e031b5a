"""The disk as journal, store and identity see it.

In reading order:

    disk           files and directories, so that every way in which they can fail can be played through
    private_files  permissions: what a bookie keeps is for its own user
    errors         what can go wrong, told apart by what must follow
    settings       limits and sizes
    watch          when a bookie stops to take normal writes for want of space
"""
