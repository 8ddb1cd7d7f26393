"""Tests of the study: planning, running, statistics and report."""
