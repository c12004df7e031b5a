"""The commands `daybook` and `kubectl daybook`.

In reading order:

    main, lazy      the command and its options; commands are imported when they run
    connection      how a command finds its cluster; how errors are shown
    output, listing, lines, progress  tables that are never cut, long lists, lines of input, progress bars
    ledger, bookie, broker, metadata  `daybook ledger …`, `daybook bookie …`, `daybook broker …`, `daybook metadata …`
    topic/          `daybook topic …`
    asked_bookies   what `daybook metadata` asks of all bookies
    audit, audit_view  `daybook audit`, `recover`, `auditor`, `autorecovery`
    up              a cluster on this machine
    demo, demo_stage, demo_input, demo_writer  the demonstration with killed processes
    demo_topics, demo_pulsar, demo_reports  its second act: topics, clients of Pulsar, a killed broker
    demo_spark, demo_compaction  its third act: Spark compacts the topic, and counts in SQL
    kubectl/        the plugin of kubectl
"""
