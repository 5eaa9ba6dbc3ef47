package main

import _ "example.com/synthetic/core/driver"
