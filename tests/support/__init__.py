"""What tests of several subjects use: clients, servers and browsers to test with."""
