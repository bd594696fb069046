"""Computes what CloudWatch would show for captured metrics: statistics, metric math, alarm states, and a picture of the
dashboard.

samples      captured values, and their statistics by period
expressions  metric math
queries      metrics and expressions as a template states them
alarms       alarms of a template, and their states at a time
dashboard    widgets of a template
picture      a dashboard as SVG

Nothing here reads a clock: every time is an argument.
"""
