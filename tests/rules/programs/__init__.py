"""Small programs that are slow for one reason each, and healthy ones that look alike."""
