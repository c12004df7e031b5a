"""Where PySpark finds the data source by itself: it imports every top-level package whose name begins with `pyspark_`.

So `spark.read.format("daybook")` needs no registration where this package is installed.
"""

from daybook_spark.source import DaybookDataSource as DefaultSource

__all__ = ["DefaultSource"]
