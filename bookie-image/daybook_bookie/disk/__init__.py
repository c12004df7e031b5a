"""The disk as journal, store and identity use it.

In reading order:

    disk           files and directories: an interface, so that tests can inject every failure
    small_files    files that are replaced and read as a whole
    directory      one process and one user for each directory
    errors         what can go wrong, one class for each reaction
    watch          when a bookie refuses normal writes for want of space
"""
