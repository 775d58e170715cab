"""aru behind the interfaces of other libraries, one module each. They import their host; nothing imports them."""
