from nppr.cli import main

main()
