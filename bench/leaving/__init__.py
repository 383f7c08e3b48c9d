"""What clients lose when instances leave: rolling restarts behind a load balancer, and the spread of closed connections."""
