"""Models that come from elsewhere: Python code, exported programs, ONNX files, model libraries.

Running a user's Python file is running code. Every other format runs none.
"""
