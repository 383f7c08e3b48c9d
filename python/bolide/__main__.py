"""``python -m bolide`` is the console script by another name."""

from bolide import main

if __name__ == "__main__":
    main()
