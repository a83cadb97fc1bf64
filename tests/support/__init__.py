"""What tests share: scripted agents, stores and servers, and what plays them."""
