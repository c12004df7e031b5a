"""The plan for the jobs of a pool on Spark, each a CronJob; what pools and Topics know of them is in `plan.spark_jobs`.

In reading order:

    schedules  which CronJobs there should be
    manifests  the manifest of such a CronJob: a driver whose executors are pods of their own
    plan       what to apply and what to remove
"""
