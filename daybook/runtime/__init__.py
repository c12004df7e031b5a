"""What every process needs, whatever it does: settings, logs, metrics, health, signals, TLS files, ports and clocks.

Nothing of Daybook is imported here, so that a bookie, a broker, the operator and a test may all stand on it.
"""
