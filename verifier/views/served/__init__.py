"""
The served page: a form, a child process per job, and what may be asked from where.
"""
