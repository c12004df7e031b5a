"""`kubectl daybook topic`: what brokers know of topics, asked through the API server alone.

pods       the brokers' pods, and their admin HTTP behind the API server's pod proxy
observe    the snapshot that `explain` judges, from the API server and the brokers
views      tables
commands   list, stats, backlog, owner, unload, explain
"""
