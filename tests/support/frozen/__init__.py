"""What the test of the stored formats needs: samples, the script that stores them, comparisons."""
