"""The commands `daybook` and `kubectl daybook`.

In reading order:

    main, lazy      the command and its options; commands are imported when they run
    connection      how a command finds its cluster; how errors are shown
    output, listing, lines  tables that are never cut, long lists, lines of input
    ledger, bookie  `daybook ledger …`, `daybook bookie …`
    audit, audit_view  `daybook audit`, `recover`, `auditor`, `autorecovery`
    up              a cluster on this machine
    demo, demo_input, demo_writer  the demonstration with killed processes
    kubectl/        the plugin of kubectl
"""
