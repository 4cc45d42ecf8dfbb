"""What the tests, the benches and the test runner share: a real server, and a look at the kernel."""
