#!/bin/sh
# Starts Chromium so that the kernel kills it together with the chromedriver that asked for it. A chromedriver that is
# killed ends no browser by itself.
exec setpriv --pdeathsig KILL -- chromium "$@"
