#!/bin/sh
# One record per line on standard input. The key names the same records at each try, so a second time changes nothing.
mkdir -p bills
cat > "bills/.$$"
mv "bills/.$$" "bills/$(echo "$HEADRACE_STREAM" | tr / -)-$HEADRACE_OFFSET-$HEADRACE_INDEX"
echo "billed $HEADRACE_RECORDS of $HEADRACE_STREAM"
