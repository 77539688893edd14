"""`tollhouse send`: splits files into requests and uploads them."""
