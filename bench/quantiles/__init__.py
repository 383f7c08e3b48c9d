"""How close the quantiles of the metrics are to the truth, with requests at times that do not wait for answers."""
