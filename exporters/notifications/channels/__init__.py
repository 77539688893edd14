"""The types of channels, one module each. `exporters.notifications.catalogue` collects them."""
