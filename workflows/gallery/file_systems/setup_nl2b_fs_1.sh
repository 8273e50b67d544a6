#!/bin/bash
# A small file system for stateflow_intercode.yaml, under the name that InterCode's first one has.
mkdir -p /testbed/notes /testbed/logs /testbed/src/tools
printf 'apple\npear\nplum\napple\nfig\n' > /testbed/notes/fruit.txt
printf 'Ulm\nBonn\nKiel\n' > /testbed/notes/towns.txt
printf 'start\nerror: disk full\nstop\nerror: no route\n' > /testbed/logs/may.log
printf 'start\nerror: no route\n' > /testbed/logs/june.log
printf 'lamp,40\nvase,15\nchair,80\n' > /testbed/notes/prices.csv
printf 'print(1)\n' > /testbed/src/one.py
printf 'def two():\n    return 2\n' > /testbed/src/tools/two.py
printf 'def three():\n    return 3\n' > /testbed/src/tools/three.py
: > /testbed/notes/empty.txt
: > /testbed/src/tools/nothing.txt
