"""Stages: functions of a config that load files, call the other rooms and write files."""
