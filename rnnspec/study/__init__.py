"""Studies: cells, tasks, settings and seeds as trials, each one training run, searched by Optuna.

In: a STUDY.yaml. Out: a folder of runs, and tables and figures of them. Optuna, Ray and Dask are
imported where they are used.
"""
