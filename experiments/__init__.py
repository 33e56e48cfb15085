"""The paper's tables and figures, with the methods it compares. Imports only the public API; nothing imports it."""
