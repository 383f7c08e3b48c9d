"""``python -m bolide`` does the same as the console script."""

from bolide import main

if __name__ == "__main__":
    main()
