module example.com/elapsed
